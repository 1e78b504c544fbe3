"""The names of LiteRT's options of Qualcomm's NPUs."""

from runtime.api.npu_options import refused

QualcommBackend = refused("QualcommBackend")
QualcommDspPerformanceMode = refused("QualcommDspPerformanceMode")
QualcommGraphIOTensorMemType = refused("QualcommGraphIOTensorMemType")
QualcommGraphPriority = refused("QualcommGraphPriority")
QualcommHtpPerformanceMode = refused("QualcommHtpPerformanceMode")
QualcommLogLevel = refused("QualcommLogLevel")
QualcommOptimizationLevel = refused("QualcommOptimizationLevel")
QualcommOptions = refused("QualcommOptions")
QualcommProfiling = refused("QualcommProfiling")
