"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

BASE_PORT = 50051

ExecutorAddress = Annotated[
    str, typer.Option("--executor", envvar="PRACTICUM_EXECUTOR", help="Address of the executor; of several: a:1,b:2.")
]
EXECUTOR = f"127.0.0.1:{BASE_PORT}"
BasePort = Annotated[int, typer.Option(help="First of the consecutive ports on loopback that services listen on.")]
Catalogue = Annotated[Path, typer.Option(help="Catalogue of environments.", exists=True, dir_okay=False)]
CATALOGUE = Path("environments/catalogue.json")
