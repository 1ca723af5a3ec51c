"""The passes over one kernel, one per file; `codegen/pipeline.py` lists their order."""
