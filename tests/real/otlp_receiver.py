"""A collector for tests: takes OTLP over gRPC and HTTP, and prints what it decoded as lines of JSON.

With CERTIFICATE and KEY as arguments, both speak TLS.

The messages and services are those of the official package opentelemetry-proto.
"""

import json
import ssl
import sys
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

LOCK = threading.Lock()


def say(**what):
    with LOCK:
        print(json.dumps(what), flush=True)


def value(any_value):
    kind = any_value.WhichOneof("value")
    return None if kind is None else getattr(any_value, kind)


def attributes(pairs):
    return {pair.key: value(pair.value) for pair in pairs}


def traces(request, via):
    for resource in request.resource_spans:
        about = attributes(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                say(
                    signal="span",
                    via=via,
                    resource=about,
                    scope=scope.scope.name,
                    name=span.name,
                    kind=span.kind,
                    trace=span.trace_id.hex(),
                    span=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    state=span.trace_state,
                    start=span.start_time_unix_nano,
                    end=span.end_time_unix_nano,
                    status=span.status.code,
                    attributes=attributes(span.attributes),
                )


def metrics(request, via):
    for resource in request.resource_metrics:
        about = attributes(resource.resource.attributes)
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                points = getattr(metric, kind).data_points
                rows = []
                for point in points:
                    number = point.count if kind == "histogram" else point.as_int or point.as_double
                    rows.append({"attributes": attributes(point.attributes), "value": number})
                say(
                    signal="metric",
                    via=via,
                    resource=about,
                    name=metric.name,
                    unit=metric.unit,
                    kind=kind,
                    points=rows,
                )


def logs(request, via):
    for resource in request.resource_logs:
        about = attributes(resource.resource.attributes)
        for scope in resource.scope_logs:
            for record in scope.log_records:
                say(
                    signal="log",
                    via=via,
                    resource=about,
                    severity=record.severity_text,
                    body=value(record.body),
                )


class Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def Export(self, request, context):
        traces(request, "grpc")
        return trace_service_pb2.ExportTraceServiceResponse()


class Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
    def Export(self, request, context):
        metrics(request, "grpc")
        return metrics_service_pb2.ExportMetricsServiceResponse()


class Logs(logs_service_pb2_grpc.LogsServiceServicer):
    def Export(self, request, context):
        logs(request, "grpc")
        return logs_service_pb2.ExportLogsServiceResponse()


SIGNALS = {
    "/v1/traces": (
        trace_service_pb2.ExportTraceServiceRequest,
        trace_service_pb2.ExportTraceServiceResponse,
        traces,
    ),
    "/v1/metrics": (
        metrics_service_pb2.ExportMetricsServiceRequest,
        metrics_service_pb2.ExportMetricsServiceResponse,
        metrics,
    ),
    "/v1/logs": (
        logs_service_pb2.ExportLogsServiceRequest,
        logs_service_pb2.ExportLogsServiceResponse,
        logs,
    ),
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request_type, response_type, tell = SIGNALS[self.path]
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Type"] != "application/x-protobuf":
            say(signal="wrong", what=self.headers["Content-Type"])
        # As the variable OTEL_EXPORTER_OTLP_HEADERS says.
        say(signal="header", value=self.headers.get("x-test-key"))
        tell(request_type.FromString(body), "http")
        answer = response_type().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def main():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(), server)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Metrics(), server)
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(Logs(), server)
    files = sys.argv[1:3]
    if files:
        certificate, key = (open(file, "rb").read() for file in files)
        credentials = grpc.ssl_server_credentials([(key, certificate)])
        grpc_port = server.add_secure_port("127.0.0.1:0", credentials)
    else:
        grpc_port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if files:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
        web.socket = context.wrap_socket(web.socket, server_side=True)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    say(grpc=grpc_port, http=web.server_address[1])
    # Ends with whoever started it.
    sys.stdin.read()


main()
