"""AReaL's configuration for a stage of GRPO."""

from __future__ import annotations

from areal.api.cli_args import (
    ClusterSpecConfig,
    EvaluatorConfig,
    GenerationHyperparameters,
    InferenceEngineConfig,
    MicroBatchSpec,
    NameResolveConfig,
    PPOActorConfig,
    PPOConfig,
    RecoverConfig,
    RejectionSamplingConfig,
    SaverConfig,
    StatsLoggerConfig,
    TensorBoardConfig,
    TrainDatasetConfig,
)

from practicum.trainer.areal_engines import optimizer
from practicum.trainer.practice import Practice

TOKENS_PER_MICRO_BATCH = 8192


def ppo_config(practice: Practice) -> PPOConfig:
    """One epoch of the stage's steps, in this process."""
    context, settings = practice.context, practice.settings
    root = str(context.output / "areal")
    names = {"experiment_name": context.spec.run_id, "trial_name": practice.stage.name}
    place = names | {"fileroot": root}
    checkpoint = practice.checkpoint.folder if practice.checkpoint else root
    return PPOConfig(
        **names,
        seed=context.spec.seed,
        tokenizer_path=str(context.model),
        total_train_epochs=1,
        total_train_steps=settings.steps,
        cluster=ClusterSpecConfig(
            fileroot=root,
            n_nodes=1,
            n_gpus_per_node=1,
            name_resolve=NameResolveConfig(type="nfs", nfs_record_root=f"{root}/names"),
        ),
        train_dataset=TrainDatasetConfig(
            path=practice.stage.grpo.tasks_path, type="rl", batch_size=settings.groups_per_step, shuffle=False
        ),
        # A row of AReaL's data is a task; the workflow brings its whole group.
        gconfig=GenerationHyperparameters(n_samples=1),
        rollout=InferenceEngineConfig(
            **place,
            backend="vllm:d1",
            tokenizer_path=str(context.model),
            consumer_batch_size=settings.groups_per_step,
            max_concurrent_rollouts=settings.max_concurrent_groups,
            max_head_offpolicyness=settings.max_staleness,
        ),
        actor=actor_config(practice, names),
        saver=SaverConfig(**place),
        evaluator=EvaluatorConfig(**place),
        recover=RecoverConfig(**names, fileroot=checkpoint, mode="on", freq_steps=1),
        stats_logger=StatsLoggerConfig(
            **place, tensorboard=TensorBoardConfig(path=str(context.output / "tensorboard" / practice.stage.name))
        ),
    )


def actor_config(practice: Practice, names: dict[str, str]) -> PPOActorConfig:
    """Decoupled PPO: clipped against the weights at the beginning of the step, and weighted by how far those are from
    the ones that sampled, which AReaL does only under rejection sampling. Advantages come with the rows."""
    settings = practice.settings
    return PPOActorConfig(
        **names,
        path=str(practice.context.model),
        backend="fsdp:d1",
        attn_impl="sdpa",
        dtype="float32",
        optimizer=optimizer(settings.learning_rate, beta2=settings.beta2),
        mb_spec=MicroBatchSpec(max_tokens_per_mb=TOKENS_PER_MICRO_BATCH),
        ppo_n_minibatches=1,
        eps_clip=settings.clip,
        # Above 0 and without a reference model, rewards would silently become zeros.
        kl_ctl=0.0,
        weight_update_mode="disk",
        use_decoupled_loss=True,
        prox_logp_method="recompute",
        rejection_sampling=RejectionSamplingConfig(
            level="token", action="mask", metric="ratio", upper=settings.importance_weight_cap
        ),
        reward_norm=None,
        adv_norm=None,
    )
