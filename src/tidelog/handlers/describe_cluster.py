"""DescribeCluster, API 60: the brokers of the cluster, by the listener the request came through.

Only brokers can be asked for: there are no separate controllers. A broker that the coordinator
does not know is not a member, so there are no fenced ones to be shown.
"""

from typing import Any, Final

from tidelog.base.errors import ErrorCode
from tidelog.cluster.image import NO_CONTROLLER
from tidelog.handlers.api import Api, Node, Request
from tidelog.handlers.building import NO_ERROR, Values, respond
from tidelog.handlers.describing import CLUSTER_OPERATIONS, NO_OPERATIONS_ASKED, controller, nodes

BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(node: Node, request: Request) -> Any:
    wanted = getattr(request.body, "endpoint_type", BROKERS)
    if wanted != BROKERS:
        return respond(request, _refused(node, wanted))
    asked = request.body.include_cluster_authorized_operations
    image = node.metadata.image
    brokers = [
        {"broker_id": broker_id, "host": host, "port": port, "rack": rack, "is_fenced": False}
        for broker_id, host, port, rack in nodes(image, request.listener)
    ]
    shown = {
        **NO_ERROR,
        "endpoint_type": BROKERS,
        "cluster_id": node.cluster_id,
        "controller_id": controller(image, request.listener),
        "brokers": brokers,
        "cluster_authorized_operations": CLUSTER_OPERATIONS if asked else NO_OPERATIONS_ASKED,
    }
    return respond(request, shown)


def _refused(node: Node, wanted: int) -> Values:
    mismatched = wanted == CONTROLLERS
    unsupported = ErrorCode.unsupported_endpoint_type
    return {
        "error_code": ErrorCode.mismatched_endpoint_type if mismatched else unsupported,
        "error_message": f"endpoints of type {wanted} cannot be asked for here, only brokers (1)",
        "endpoint_type": BROKERS,
        "cluster_id": node.cluster_id,
        "controller_id": NO_CONTROLLER,
        "brokers": (),
    }


API = Api(key=60, first=0, last=2, handle=handle)
