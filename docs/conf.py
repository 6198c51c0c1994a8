"""Sphinx settings: furo, MyST, and every warning an error (`nox -s docs`)."""

from importlib import metadata

project = "NeuralDBG"
author = "The NeuralDBG authors"
project_copyright = f"2026, {author}"
release = metadata.version("neuraldbg")
version = ".".join(release.split(".")[:2])

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}

html_theme = "furo"
html_title = f"NeuralDBG {release}"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_typehints = "description"
