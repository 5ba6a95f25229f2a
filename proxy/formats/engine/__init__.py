"""Parts that formats are built from: escaping, layouts, and syntaxes that several formats share."""
