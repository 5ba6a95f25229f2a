"""What the formats are made of: escaping, layouts, recognition, syntaxes that several of them share."""
