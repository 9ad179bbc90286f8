"""ModelPackages: their files and description, whether they are intact, and what they fit."""
