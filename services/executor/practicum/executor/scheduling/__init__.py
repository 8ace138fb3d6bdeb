"""Who runs what, and when: pure state machines that know no clock, no disk and no network."""
