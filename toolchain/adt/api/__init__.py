"""Every verb of adt as a function: typed arguments in, a frozen result out.

The command line parses, calls one of these and renders its result. Arguments
left at None take their value from the environment, ``adt.toml``,
``[tool.adt]`` or the defaults (`adt config`). Each module holds
the verbs of one area and imports only what these need; ``adt.VERB`` finds any.
"""
