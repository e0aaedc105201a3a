"""SVG made on the server: shapes with classes, whose colors are in the stylesheet. All text is escaped here."""
