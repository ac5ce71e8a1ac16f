//! Buffered sends: messages that were accepted and are not sent yet.
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

/// The largest number of waiting messages of a client. A further send waits for one of them.
const MAX_WAITING: usize = 256;

/// The peer and the tag of a queue.
type Key = (c_int, c_int);

pub(crate) struct Outbox {
    shared: Arc<Shared>,
}

struct Shared {
    comm: Handle,
    state: Mutex<State>,
    /// A key has become ready, or the outbox is closed.
    ready: Condvar,
    /// A message was sent or has failed.
    completed: Condvar,
}

#[derive(Default)]
struct State {
    /// A key has an entry while it has messages or a thread.
    queues: HashMap<Key, VecDeque<Vec<u8>>>,
    /// Keys that have messages and no thread.
    ready: VecDeque<Key>,
    /// The number of messages that were accepted and have not completed.
    waiting: usize,
    /// The number of threads that wait for a key.
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    /// The error of the first message that failed. Its communicator has failed too.
    failed: Option<String>,
    closed: bool,
}

impl Outbox {
    pub(crate) fn new(comm: Handle) -> Self {
        let (ready, completed) = (Condvar::new(), Condvar::new());
        Self { shared: Arc::new(Shared { comm, state: Mutex::default(), ready, completed }) }
    }

    /// Accepts a message. Waits while `MAX_WAITING` messages wait, each of which completes by the
    /// deadline of its operation. Fails if an earlier message has failed, or if no thread can be
    /// started.
    pub(crate) fn send(&self, to: c_int, tag: c_int, bytes: Vec<u8>) -> Result<(), String> {
        let full = |state: &mut State| state.waiting >= MAX_WAITING;
        let state = self.shared.completed.wait_while(self.shared.lock(), full);
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

    /// Waits until all messages have completed, at most `timeout`. Returns whether they have.
    pub(crate) fn drain(&self, timeout: Duration) -> bool {
        let some = |state: &mut State| state.waiting > 0;
        let waited = self.shared.completed.wait_timeout_while(self.shared.lock(), timeout, some);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting == 0
    }

    /// Ends the threads. Waiting messages are sent or, if the communicator was aborted, fail at
    /// once.
    pub(crate) fn close(&self) {
        let mut state = self.shared.lock();
        state.closed = true;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.shared.ready.notify_all();
        for thread in threads {
            // It cannot panic and returns nothing.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body of a thread: sends the messages of one key after another.
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

    /// Sends the messages of a key until it has none, and removes it.
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
            self.completed.notify_all();
        }
        state.queues.remove(&key);
        state
    }
}
