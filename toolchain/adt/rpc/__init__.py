"""TVM's RPC: the tracker on this machine, a server on each device, and sessions with them.

Everything runs in processes of their own that outlive the command which started
them; :mod:`adt.rpc.state` has their records, and stopping works from those.
"""
