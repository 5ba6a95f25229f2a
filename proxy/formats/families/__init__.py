"""The formats, one module for each family of models. Each module defines a `toolwire.formats.base.ToolFormat`."""
