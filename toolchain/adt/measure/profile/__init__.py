"""Profile of a package: where its time goes, call by call.

``assembly``  a profile: what the runner measured, with what the package's graph says of each call
``output``    the same as text, as a page, and as a trace
"""
