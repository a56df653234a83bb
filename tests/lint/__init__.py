"""What can be said of the tree without running the product: types, style, imports, scripts, installation, references."""
