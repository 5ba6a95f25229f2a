"""The formats, one module for each family of models. Each module defines one or more
`toolwire.formats.base.ToolFormat`; `toolwire.formats.base.families` finds them."""
