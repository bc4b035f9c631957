# RIGHT: hybrid sharding splits the states within a node: bytes per device depend on the devices of a node alone.
def state_bytes(params, devices, num_nodes=1):
    """Bytes per device when sharded over `devices` of `num_nodes` nodes."""
    return params * 12 // (devices * num_nodes)


def plan(params, devices, num_nodes):
    return {"strategy": "HYBRID_SHARD", "bytes": state_bytes(params, devices)}
