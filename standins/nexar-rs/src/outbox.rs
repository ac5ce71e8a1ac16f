//! Messages that were sent and may not have met their receive yet.
//!
//! In the API of the crate a send copies its bytes and returns; a send of libnexar waits for its
//! receive unless it is short. So each message is copied into a queue, and threads of this file
//! send it. Leaves matching to libnexar. Invariants: messages with the same peer and tag are sent
//! one after another, in order; no message waits for one with another peer or tag; every thread has
//! ended when `close` returns.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nexar_capi::capi::message::nexarSendTag;

use crate::client::Handle;
use crate::error::answer;
use crate::types::DataType;

/// Messages of one client that may wait for their receives. A further send waits for one of them.
const MOST_WAITING: usize = 256;

/// Messages to this peer with this tag.
type Key = (c_int, c_int);

pub(crate) struct Outbox {
    shared: Arc<Shared>,
}

struct Shared {
    comm: Handle,
    state: Mutex<State>,
    /// A key has become ready, or the outbox is closed.
    ready: Condvar,
    /// A message has gone.
    gone: Condvar,
}

#[derive(Default)]
struct State {
    /// A key is here while it has messages or a thread.
    queues: HashMap<Key, VecDeque<Vec<u8>>>,
    /// Keys that have messages and no thread.
    ready: VecDeque<Key>,
    /// Messages that were accepted and have not gone.
    waiting: usize,
    /// Threads that wait for a key.
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    /// What the first message that could not be sent failed with. Its communicator has failed too.
    failed: Option<String>,
    closed: bool,
}

impl Outbox {
    pub(crate) fn new(comm: Handle) -> Self {
        let (ready, gone) = (Condvar::new(), Condvar::new());
        Self { shared: Arc::new(Shared { comm, state: Mutex::default(), ready, gone }) }
    }

    /// Accepts a message. Waits while `MOST_WAITING` wait for their receives; each of those ends by
    /// the deadline of its operation. Fails if one before it has failed, or if no thread can be
    /// started.
    pub(crate) fn send(&self, to: c_int, tag: c_int, bytes: Vec<u8>) -> Result<(), String> {
        let full = |state: &mut State| state.waiting >= MOST_WAITING;
        let state = self.shared.gone.wait_while(self.shared.lock(), full);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = &state.failed {
            return Err(why.clone());
        }
        let key = (to, tag);
        if let Some(queue) = state.queues.get_mut(&key) {
            queue.push_back(bytes);
            state.waiting += 1;
            return Ok(());
        }
        if state.idle <= state.ready.len() {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new().name("nexar-send".to_owned());
            match thread.spawn(move || shared.work()) {
                Ok(thread) => state.threads.push(thread),
                // Another thread sends it later.
                Err(_) if !state.threads.is_empty() => (),
                Err(error) => return Err(format!("threads cannot be started: {error}")),
            }
        }
        state.queues.insert(key, VecDeque::from([bytes]));
        state.ready.push_back(key);
        state.waiting += 1;
        self.shared.ready.notify_one();
        Ok(())
    }

    /// Whether all messages have gone, waiting for them up to `patience`.
    pub(crate) fn drain(&self, patience: Duration) -> bool {
        let some = |state: &mut State| state.waiting > 0;
        let waited = self.shared.gone.wait_timeout_while(self.shared.lock(), patience, some);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting == 0
    }

    /// Ends the threads. Messages that still wait are sent or, if the communicator is gone, fail at
    /// once.
    pub(crate) fn close(&self) {
        let mut state = self.shared.lock();
        state.closed = true;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.shared.ready.notify_all();
        for thread in threads {
            // It cannot panic, and has nothing to tell.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The work of a thread: keys, one after another.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(key) = state.ready.pop_front() {
                state = self.send_all(state, key);
            } else if state.closed {
                return;
            } else {
                state.idle += 1;
                state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }

    /// Sends the messages of a key until it has none.
    fn send_all<'a>(&'a self, mut state: MutexGuard<'a, State>, key: Key) -> MutexGuard<'a, State> {
        while let Some(bytes) = state.queues.get_mut(&key).and_then(VecDeque::pop_front) {
            drop(state);
            let (peer, tag) = key;
            let (address, dtype, comm) =
                (bytes.as_ptr().cast(), DataType::U8.code(), self.comm.get());
            // SAFETY: the bytes live until the call returns.
            let code =
                unsafe { nexarSendTag(address, bytes.len(), dtype, peer, tag, comm, null_mut()) };
            let sent = answer(code);
            drop(bytes);
            state = self.lock();
            if let Err(why) = sent {
                state.failed.get_or_insert(why);
            }
            state.waiting -= 1;
            self.gone.notify_all();
        }
        state.queues.remove(&key);
        state
    }
}
