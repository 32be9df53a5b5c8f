"""Files: model folders, safetensors, journals."""
