//! Ranks as threads of this process, with a limit to what they take.

#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use nexar::{CpuAdapter, DeviceAdapter, SyncClient};

/// No test takes longer on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// What each of `size` ranks returns, in rank order.
pub fn run<T: Send + 'static>(
    size: u32,
    body: impl Fn(SyncClient) -> T + Send + Sync + 'static,
) -> Vec<T> {
    run_on(Arc::new(CpuAdapter::new()), size, body)
}

/// As `run`, with an adapter.
pub fn run_on<T: Send + 'static>(
    adapter: Arc<dyn DeviceAdapter>,
    size: u32,
    body: impl Fn(SyncClient) -> T + Send + Sync + 'static,
) -> Vec<T> {
    within_limit(move || {
        let clients = SyncClient::bootstrap_local(size, adapter).unwrap();
        let ranks: Vec<_> = clients.iter().map(SyncClient::rank).collect();
        assert_eq!(ranks, (0..size).collect::<Vec<_>>());
        thread::scope(|scope| {
            let body = &body;
            let ranks: Vec<_> =
                clients.into_iter().map(|client| scope.spawn(move || body(client))).collect();
            ranks.into_iter().map(|rank| rank.join().expect("a rank panicked")).collect()
        })
    })
}

/// What `body` returns, unless it takes too long or panics.
pub fn within_limit<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (ended, end) = channel();
    thread::spawn(move || ended.send(body()));
    end.recv_timeout(LIMIT).expect("it panicked, or took too long")
}

pub fn address<T>(data: &[T]) -> u64 {
    data.as_ptr() as u64
}

pub fn address_mut<T>(data: &mut [T]) -> u64 {
    data.as_mut_ptr() as u64
}
