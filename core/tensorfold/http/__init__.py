"""The HTTP front: sockets, limits and life cycle around the dialects' codecs. Knows no dialect and no model.

How it is used::

    app = create_app(
        engine=engine,            # contracts.engine.Engine
        model=model,              # contracts.engine.ModelInfo
        dialects=dialects,        # Sequence[contracts.dialect.Dialect]
        auth=auth_sources,        # Sequence[contracts.auth.AuthSource]
        filters=filters,          # Sequence[contracts.policy.RequestFilter]
        observers=observers,      # Sequence[contracts.observe.Observer]
        collectors=collectors,    # Sequence[prometheus_client.registry.Collector]
        settings=HttpSettings(),
    )                             # raises PluginConflict: two dialects claim one path, name or model key
    run_server(app, ServerSettings(host="127.0.0.1", port=8080), on_ready=lambda url: print(url))
    # blocks until the server has ended (SIGTERM, SIGINT or `app.stop()`); raises ConfigError when the address cannot
    # be bound; closes the engine before it returns. Signals are only taken in the main thread.

`app` is an ASGI application and can run under any ASGI server; `run_server` adds what a server of its own needs:
signals, draining, key reloading, bounds on connections and headers.
Logging is the caller's choice: `observe.logs.configure_logs(format="console", level="info")`, once, in `main`.
"""

from tensorfold.http.app import Application, create_app
from tensorfold.http.server import run_server
from tensorfold.http.settings import HttpSettings, ServerSettings

__all__ = ["Application", "HttpSettings", "ServerSettings", "create_app", "run_server"]
