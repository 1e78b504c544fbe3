"""WebGPU as a backend of the delegate's core: Vulkan, Metal, Direct3D and OpenGL through `wgpu`."""
