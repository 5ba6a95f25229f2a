"""Parts that formats are built from: escaping, layouts, recognition, and syntaxes that several formats share."""
