//! The live requests of a communicator, and the thread that polls those that no call waits for.
//!
//! The thread is started with the first request that does not complete at once. It sleeps until
//! there are requests, watches those that are live after `TICK`, and then sleeps until something
//! wakes them. Most requests are waited for sooner, so a short exchange wakes no thread. Leaves to
//! `message_request` how a request is polled. Invariants: a request that no call waits for is
//! watched after at most a few `TICK`s; the thread ends with the communicator, which it does not
//! keep.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::error::{Error, Result};
use crate::transport::Waiting;
use crate::{parker, runtime};

use super::message_request::{LiveCount, MessageRequest};

const THREAD: &str = "nexar-request";

/// How long a request is left to the calls of the program, and how often the thread looks for older
/// ones while requests are issued.
const TICK: Duration = Duration::from_millis(1);
/// After this many ticks without a new request, the thread sleeps until there is one.
const QUIET: u32 = 20;

/// Longer than any request may take.
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Completed requests are removed when there are this many.
const FIRST_PURGE: usize = 64;

pub struct RequestSet {
    pub live: LiveCount,
    shared: Arc<Mutex<SetState>>,
}

struct SetState {
    /// In the order of issue; some may have completed.
    requests: Vec<Arc<MessageRequest>>,
    /// How many of them the thread watches, or has watched: the first.
    watched: usize,
    purge_at: usize,
    /// How many requests were ever added.
    added: u64,
    is_started: bool,
    /// Whether the thread looks for new requests every `TICK`.
    is_looking: bool,
    has_ended: bool,
    /// The waker of the thread.
    waker: Option<Waker>,
}

/// A request as the thread polls it.
struct WatchedRequest(Arc<MessageRequest>);

impl Future for WatchedRequest {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0.watch(context) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Default for RequestSet {
    fn default() -> Self {
        let state = SetState {
            requests: Vec::new(),
            watched: 0,
            purge_at: FIRST_PURGE,
            added: 0,
            is_started: false,
            is_looking: false,
            has_ended: false,
            waker: None,
        };
        Self { live: Arc::new(AtomicUsize::new(0)), shared: Arc::new(Mutex::new(state)) }
    }
}

impl RequestSet {
    /// Starts the thread, if it does not run yet.
    pub fn start(&self) -> Result<()> {
        let mut state = lock(&self.shared);
        if !state.is_started {
            let shared = Arc::clone(&self.shared);
            runtime::start_thread(THREAD, move || watch_all(&shared))?;
            state.is_started = true;
        }
        Ok(())
    }

    /// Adds a live request. False if the set has ended; the caller must then end the request.
    pub fn add(&self, request: &Arc<MessageRequest>) -> bool {
        let mut state = lock(&self.shared);
        if state.has_ended {
            return false;
        }
        if state.requests.len() >= state.purge_at {
            state.purge();
        }
        state.requests.push(Arc::clone(request));
        state.added += 1;
        let waker = if state.is_looking { None } else { state.waker.take() };
        state.is_looking = true;
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Completes all live requests with an error. None can be added any more.
    pub fn end(&self, cause: &Error) {
        let mut state = lock(&self.shared);
        state.has_ended = true;
        let (requests, waker) = (std::mem::take(&mut state.requests), state.waker.take());
        drop(state);
        requests.iter().for_each(|request| request.end(cause.clone()));
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for RequestSet {
    fn drop(&mut self) {
        self.end(&Error::Aborted);
    }
}

impl SetState {
    /// Removes completed requests.
    fn purge(&mut self) {
        let watched = self.watched;
        let mut index = 0;
        self.requests.retain(|request| {
            let (is_watched, is_live) = (index < watched, !request.has_completed());
            index += 1;
            self.watched -= usize::from(is_watched && !is_live);
            is_live
        });
        self.purge_at = FIRST_PURGE.max(2 * self.requests.len());
    }
}

/// The body of the thread.
fn watch_all(shared: &Mutex<SetState>) {
    let mut watched = FuturesUnordered::new();
    let (mut seen, mut quiet) = (0, 0);
    let mut waiting = Waiting::default();
    loop {
        let now = Instant::now();
        let mut state = lock(shared);
        if state.has_ended {
            return;
        }
        state.purge();
        if state.added == seen {
            quiet += 1;
        } else {
            (seen, quiet) = (state.added, 0);
        }
        let first = state.requests.first().cloned();
        let is_old = |request: &Arc<MessageRequest>| {
            request.times().is_none_or(|(issued, _)| issued + TICK <= now)
        };
        let new = &state.requests[state.watched..];
        let adopted: Vec<_> = new.iter().take_while(|one| is_old(one)).cloned().collect();
        state.watched += adopted.len();
        if quiet >= QUIET && state.watched == state.requests.len() {
            state.is_looking = false;
        }
        let was_looking = state.is_looking;
        drop(state);
        for request in adopted {
            let own = request.waiting();
            own.hand_over();
            waiting = if watched.is_empty() { own } else { waiting.and(own) };
            watched.push(WatchedRequest(request));
        }
        // All requests of a communicator have the same time: the first ends first.
        let deadline = first.as_ref().and_then(|first| first.times()).map(|(_, deadline)| deadline);
        if let (Some(first), Some(deadline)) = (&first, deadline)
            && deadline <= now
        {
            first.check_deadline(now);
            continue;
        }
        let is_idle = watched.is_empty();
        let until = if was_looking { now + TICK } else { deadline.unwrap_or(now + A_YEAR) };
        let polled = pin!(poll_fn(|context| {
            if let Some(first) = &first {
                first.progress();
            }
            let mut has_changed = false;
            while let Poll::Ready(Some(())) = watched.poll_next_unpin(context) {
                has_changed = true;
            }
            let mut state = lock(shared);
            state.waker = Some(context.waker().clone());
            has_changed |= state.has_ended || state.is_looking != was_looking;
            if has_changed { Poll::Ready(()) } else { Poll::Pending }
        }));
        let _ = if is_idle {
            parker::block_on(polled, until)
        } else {
            waiting.wait_asleep(polled, until)
        };
    }
}

fn lock(shared: &Mutex<SetState>) -> MutexGuard<'_, SetState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
