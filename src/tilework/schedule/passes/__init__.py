"""The steps of scheduling, one per file, in the order that `schedule.pipeline` lists."""
