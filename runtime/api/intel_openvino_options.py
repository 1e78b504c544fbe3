"""The names of LiteRT's options of Intel's NPUs."""

from runtime.api.npu_options import refused

IntelOpenVinoGraphBackend = refused("IntelOpenVinoGraphBackend")
IntelOpenVinoOptions = refused("IntelOpenVinoOptions")
IntelOpenVinoPerformanceMode = refused("IntelOpenVinoPerformanceMode")
