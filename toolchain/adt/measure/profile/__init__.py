"""Profile of a package: where its time goes, call by call.

``assembly``  a profile: what the runner measured, with what the package's graph says of each call
``table``     one row for each kernel, as text
``page``      the same as one self-contained HTML page
``trace``     the calls as a trace for chrome://tracing and Perfetto
"""
