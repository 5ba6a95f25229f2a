"""The formats, one module for each family of models. Each is a value of `toolwire.formats.base.ToolFormat`."""
