"""The OpenAPI document of an application, served as `/openapi.json` (R27.1)."""
