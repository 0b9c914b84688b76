"""A server for the application: its socket, its signals, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor

import structlog
import uvicorn

from tensorfold.http.app import Application
from tensorfold.http.collector import long_lived
from tensorfold.http.listening import check_tls, is_local, listen, remove_socket, url_of
from tensorfold.http.protocol import bounded_protocol
from tensorfold.http.settings import ServerSettings

__all__ = ["run_server"]


def run_server(app: Application, settings: ServerSettings, *, on_ready: Callable[[str], None]) -> None:
    """Serve until a signal or `Application.stop`, then end in order.

    The first SIGTERM or SIGINT closes the listening socket, refuses new requests and lets running replies go on for
    `drain_seconds`; a second one, or the end of that time, aborts them. SIGHUP reloads the auth sources.

    Args:
        on_ready: told the server's own URL once requests are answered (`http://127.0.0.1:8080`, `unix:PATH`).

    Raises:
        ConfigError: the address cannot be bound, or the certificate cannot be used.
    """
    check_tls(settings)
    with _listening(settings) as listener:
        if not app.guarded and not is_local(listener):
            structlog.get_logger().warning(
                "anyone who reaches this address can use the server: give keys with --api-key-file, or bind 127.0.0.1",
                host=settings.host,
            )
        with long_lived(), asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_Server(app, settings, listener).run(on_ready))


@contextlib.contextmanager
def _listening(settings: ServerSettings) -> Generator[socket.socket]:
    listener = listen(settings)
    try:
        yield listener
    finally:
        listener.close()
        remove_socket(settings)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not on every platform
        return None
    return uvloop.new_event_loop


class _Uvicorn(uvicorn.Server):
    """uvicorn without signal handlers of its own: it would send itself the signal again at the end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _Server:
    """One run of the server."""

    def __init__(self, app: Application, settings: ServerSettings, listener: socket.socket) -> None:
        self._app = app
        self._settings = settings
        self._listener = listener
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._reloader = ThreadPoolExecutor(1, thread_name_prefix="tensorfold-auth")
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                app,
                http=bounded_protocol(settings),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",  # what there is to say, the application says
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=settings.idle_seconds,
                ssl_certfile=settings.tls_cert,
                ssl_keyfile=settings.tls_key,
            )
        )

    async def run(self, on_ready: Callable[[str], None]) -> None:
        """Serve and end."""
        serving = asyncio.create_task(self._uvicorn.serve(sockets=[self._listener]))
        refreshing = asyncio.create_task(self._refresh_auth())
        try:
            with self._signals():
                while not self._uvicorn.started and not serving.done():
                    await asyncio.sleep(0.005)
                if not serving.done():
                    self._app.when_stopped(self.stop)
                    on_ready(url_of(self._listener, tls=self._settings.tls_cert is not None))
                    await self._stop.wait()
                    await self._drain()
                await self._finish(serving)
        finally:
            refreshing.cancel()
            self._reloader.shutdown(wait=True, cancel_futures=True)
            self._app.close()

    def stop(self) -> None:
        """A signal: the first ends the server in order, the second at once."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def _drain(self) -> None:
        """No new requests; those in progress go on until they end, the time is over, or somebody is in a hurry."""
        structlog.get_logger().info("shutting down", requests=self._app.active)
        self._app.drain()
        self._uvicorn.should_exit = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_seconds):
                while self._app.active and not self._hurry.is_set():
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._hurry.wait(), 0.02)
        await self._app.engine.close(0.0)

    async def _finish(self, serving: asyncio.Task[None]) -> None:
        """Aborted replies have a moment to reach their clients; then their connections are cut."""
        _, late = await asyncio.wait({serving}, timeout=self._settings.flush_seconds)
        if late:
            self._uvicorn.force_exit = True
            for connection in tuple(self._uvicorn.server_state.connections):
                connection.transport.abort()
            for task in tuple(self._uvicorn.server_state.tasks):
                task.cancel()
        await serving

    async def _refresh_auth(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._settings.refresh_seconds)
            await loop.run_in_executor(self._reloader, self._app.refresh_auth)

    def _reload_auth(self) -> None:
        structlog.get_logger().info("reloading keys")
        asyncio.get_running_loop().run_in_executor(self._reloader, self._app.reload_auth)

    @contextlib.contextmanager
    def _signals(self) -> Generator[None]:
        """Handlers, where this thread may have them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        handlers = {signal.SIGTERM: self.stop, signal.SIGINT: self.stop}
        if hasattr(signal, "SIGHUP"):
            handlers[signal.SIGHUP] = self._reload_auth
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)
