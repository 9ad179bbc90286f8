"""Where the time of a package goes, call by call.

``assemble``  a profile of a package, from what the runner measured
``join``      put what was measured together with what the package's graph says of each call
``totals``    one row for each kernel
``table``     … as text
``page``      … as one self-contained HTML page
``trace``     … as a trace for chrome://tracing and Perfetto
"""
