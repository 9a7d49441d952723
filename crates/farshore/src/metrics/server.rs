//! The page of metrics for whoever may read it: one question per connection, bounded in number, size and time.
//!
//! It runs on the control thread, beside the control socket. Beyond loopback it speaks TLS by the node's own certificate, and whoever
//! asks shows one that an NBD client would be let in with; everybody else is turned away in the handshake, and the log says whom.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use host::report_limiter::{REPEAT_AFTER, ReportLimiter, ReportSubject};
use host::tls::CredentialStore;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::fs::Mode;
use settings::ListenAddress;
use settings::limits::{METRICS_CLIENTS_MAX, METRICS_IO_TIMEOUT, METRICS_REQUEST_BYTES_MAX};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::PageForm;
use crate::api::server;

/// Where it is asked for.
const PATH: &str = "/metrics";
/// Connections of one address at a time: a quarter of all.
const CLIENTS_OF_ONE_MAX: usize = METRICS_CLIENTS_MAX.div_ceil(4);
/// Pause after a failed accept or bind.
const RETRY: Duration = Duration::from_millis(500);
/// Of a unix socket: its owner and its group, which is that of its directory if the directory is setgid.
const SOCKET_MODE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP).union(Mode::WGRP);

/// Where metrics are read, and how readers prove who they are; `None`: whoever reaches it may read.
#[derive(Clone, Debug)]
pub struct MetricsEndpoint {
    pub listen: ListenAddress,
    pub tls: Option<CredentialStore>,
}

enum MetricsListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Answers readers until the future is dropped; must run inside a `tokio::task::LocalSet`. An address that cannot be had now is tried
/// again: a mirror does not stay down for it. `make` makes the page, on this thread.
pub async fn serve<M, F>(endpoint: MetricsEndpoint, make: M)
where
    M: Fn(PageForm) -> F + 'static,
    F: Future<Output = String> + 'static,
{
    let mut was_said = false;
    let listener = loop {
        match bind(&endpoint.listen).await {
            Ok(listener) => break listener,
            Err(why) if was_said => tracing::debug!("{why}"),
            Err(why) => tracing::error!("metrics cannot be read at {}, which is tried again: {why}", endpoint.listen),
        }
        was_said = true;
        sleep(RETRY).await;
    };
    let _socket = match &endpoint.listen {
        ListenAddress::Unix(path) => Some(SocketFile(path.clone())),
        ListenAddress::Tcp(_) => None,
    };
    tracing::info!("metrics are read at {}{PATH}", endpoint.listen);
    serve_at(listener, endpoint.tls, make).await;
}

async fn bind(listen: &ListenAddress) -> Result<MetricsListener, String> {
    match listen {
        ListenAddress::Tcp(address) => {
            TcpListener::bind(address).await.map(MetricsListener::Tcp).map_err(|error| error.to_string())
        }
        ListenAddress::Unix(path) => server::bind_with(path, SOCKET_MODE).map(MetricsListener::Unix),
    }
}

async fn serve_at<M, F>(listener: MetricsListener, tls: Option<CredentialStore>, make: M)
where
    M: Fn(PageForm) -> F + 'static,
    F: Future<Output = String> + 'static,
{
    let desk = Rc::new(MetricsDesk { make, tls, reports: ReportLimiter::new(REPEAT_AFTER) });
    let room = Arc::new(Semaphore::new(METRICS_CLIENTS_MAX));
    let places = Rc::new(Places::default());
    let mut readers = tokio::task::JoinSet::new();
    loop {
        // The semaphore is never closed, so a permit always comes.
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        while readers.try_join_next().is_some() {}
        let accepted = match &listener {
            MetricsListener::Tcp(listener) => listener.accept().await.map(|(stream, from)| {
                let desk = desk.clone();
                // Whoever holds on to connections keeps nobody else out.
                let Some(place) = places.take(from.ip()) else { return };
                readers.spawn_local(async move {
                    desk.meet(stream, &from.ip().to_string()).await;
                    drop((permit, place));
                });
            }),
            MetricsListener::Unix(listener) => listener.accept().await.map(|(stream, _)| {
                let desk = desk.clone();
                readers.spawn_local(async move {
                    desk.converse(stream).await;
                    drop(permit);
                });
            }),
        };
        if let Err(error) = accepted {
            tracing::warn!(%error, "a reader of metrics could not be accepted");
            sleep(RETRY).await;
        }
    }
}

/// How many connections each address has.
#[derive(Default)]
struct Places(RefCell<BTreeMap<IpAddr, usize>>);

/// One of them, given back on drop.
struct Place(Rc<Places>, IpAddr);

impl Places {
    fn take(self: &Rc<Self>, from: IpAddr) -> Option<Place> {
        let mut counts = self.0.borrow_mut();
        let count = counts.entry(from).or_default();
        (*count < CLIENTS_OF_ONE_MAX).then(|| {
            *count += 1;
            Place(self.clone(), from)
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.0.0.borrow_mut();
        let left = counts.get(&self.1).copied().unwrap_or(1) - 1;
        match left {
            0 => _ = counts.remove(&self.1),
            left => _ = counts.insert(self.1, left),
        }
    }
}

/// It would lead nowhere once nobody serves it.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

struct MetricsDesk<M> {
    make: M,
    tls: Option<CredentialStore>,
    reports: ReportLimiter,
}

impl<M, F> MetricsDesk<M>
where
    M: Fn(PageForm) -> F,
    F: Future<Output = String>,
{
    /// Has a reader prove who it is, where that is asked, and answers.
    async fn meet(&self, stream: TcpStream, from: &str) {
        let Some(store) = &self.tls else { return self.converse(stream).await };
        let acceptor = TlsAcceptor::from(store.current().accept_scraper());
        let why = match timeout(METRICS_IO_TIMEOUT, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => return self.converse(stream).await,
            Ok(Err(error)) => host::tls::refusal_of(&error),
            Err(_) => format!("it did not finish the TLS handshake within {METRICS_IO_TIMEOUT:?}"),
        };
        if self.reports.is_news(ReportSubject::Unauthenticated(from), "metrics") {
            tracing::warn!("a reader of metrics from {from} was turned away: {why}");
        }
    }

    /// One question and its answer. Whoever takes longer than both may has the connection closed.
    async fn converse(&self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let answer = async |request: Request<_>| Ok::<_, Infallible>(self.answer(&request).await);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(METRICS_IO_TIMEOUT)
            .max_buf_size(METRICS_REQUEST_BYTES_MAX)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service_fn(answer));
        match timeout(2 * METRICS_IO_TIMEOUT, connection).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a reader of metrics was not answered"),
            Err(_) => tracing::debug!("a reader of metrics took too long"),
        }
    }

    async fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let method = request.method();
        if request.uri().path() != PATH {
            return refuse(StatusCode::NOT_FOUND, "there is nothing here but the metrics: GET /metrics\n");
        }
        if method != Method::GET && method != Method::HEAD {
            let mut refusal = refuse(StatusCode::METHOD_NOT_ALLOWED, "metrics are only read: GET /metrics\n");
            refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refusal;
        }
        let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let form = PageForm::accepted(accept);
        respond(StatusCode::OK, form.content_type(), (self.make)(form).await)
    }
}

fn refuse(status: StatusCode, sentence: &'static str) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", sentence)
}

fn respond(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_takes_a_quarter_of_the_places() {
        let places = Rc::new(Places::default());
        let [near, far] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let held: Vec<Place> = std::iter::from_fn(|| places.take(near)).collect();
        assert_eq!(held.len(), 4);
        assert!(places.take(far).is_some());
        drop(held);
        assert!(places.0.borrow().is_empty() && places.take(near).is_some());
    }
}
