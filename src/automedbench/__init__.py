"""AutoMedBench: autonomous agents on medical-AI research, run, isolated, scored and judged."""

__version__ = "0.2.0"
