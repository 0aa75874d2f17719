"""Study files that ship with the package."""
