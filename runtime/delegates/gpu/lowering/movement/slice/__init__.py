"""Parts of tensors: cut out of one, or written over one."""
