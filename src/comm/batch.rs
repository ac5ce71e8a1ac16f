//! Operations that have their numbers and run together: a call alone, or those of a group.
//!
//! They may belong to several communicators. Each is started before any is waited for, and each
//! ends by itself; only the deadline is the last one's.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;

use crate::error::{Error, Result};
use crate::op::{Call, Op};
use crate::runtime;
use crate::transport::{AnyMesh, Past};

use super::Communicator;

#[derive(Default)]
pub struct Batch<'a> {
    issued: Vec<Issued<'a>>,
    /// Waits for all that its communicators were asked before.
    in_turn: bool,
}

/// An operation with its number.
struct Issued<'a> {
    communicator: Arc<Communicator>,
    seq: u64,
    past: Past,
    call: Call,
    op: Op<'a>,
}

impl<'a> Batch<'a> {
    /// Operations that wait for those before them on the same communicators, as on a stream.
    pub fn in_turn() -> Self {
        Self { issued: Vec::new(), in_turn: true }
    }

    /// Gives an operation its number. The batch must then be run.
    pub fn add(&mut self, communicator: &Arc<Communicator>, op: Op<'a>) -> Result<()> {
        let call = op.call();
        let (seq, past) = communicator.begin(call)?;
        let communicator = Arc::clone(communicator);
        self.issued.push(Issued { communicator, seq, past, call, op });
        Ok(())
    }

    /// Runs all operations to their end on the calling thread. Returns the error of the first, in
    /// the order in which they were added, that failed.
    pub fn run(self) -> Result<()> {
        let Self { issued, in_turn } = self;
        let now = Instant::now();
        let Some(deadline) = issued.iter().map(|one| now + one.communicator.op_timeout).max()
        else {
            return Ok(());
        };
        let of_network = |one: &Issued<'_>| matches!(one.communicator.mesh, AnyMesh::Quic(_));
        let over_network = issued.iter().any(of_network);
        let leaves_work = issued.iter().any(|one| one.communicator.leaves_work(&one.op));

        let mut asked = Vec::with_capacity(issued.len());
        let mut ops = Vec::with_capacity(issued.len());
        for Issued { communicator, seq, past, call, op } in issued {
            asked.push((communicator, seq, past, call));
            ops.push(op);
        }
        let results: RefCell<Vec<Option<Result<()>>>> = RefCell::new(vec![None; asked.len()]);
        let first_of = |communicator: &Arc<Communicator>| {
            let mut of_this = asked.iter().filter(|(other, ..)| Arc::ptr_eq(other, communicator));
            of_this.next().map_or(0, |(_, seq, ..)| *seq)
        };
        let operations = asked.iter().zip(ops).enumerate();
        let all = operations.map(|(index, ((communicator, seq, past, call), op))| {
            let running = communicator.running(*seq, *past, *call);
            let after = in_turn.then(|| first_of(communicator));
            let results = &results;
            async move {
                let result = communicator.perform(&running, after, op).await;
                results.borrow_mut()[index] = Some(running.end(result));
            }
        });
        // In a box: it is larger than the stack of a small thread.
        let mut all = Box::pin(join_all(all));
        let ended = catch_unwind(AssertUnwindSafe(|| match over_network {
            false => runtime::block_on(all.as_mut(), deadline),
            true => runtime::drive(all.as_mut(), deadline, leaves_work),
        }));
        for (index, (communicator, seq, _, call)) in asked.iter().enumerate() {
            let cause = match &ended {
                Ok(Some(_)) => break,
                Ok(None) => communicator.timeout(*seq),
                Err(panic) => Error::from_panic(&**panic),
            };
            // Before the operation is dropped: nothing is sent behind a message it broke off.
            let mut results = results.borrow_mut();
            results[index].get_or_insert_with(|| Err(communicator.failed(*seq, *call, cause)));
        }
        drop(all);
        let first_error = results.into_inner().into_iter().flatten().find(Result::is_err);
        first_error.unwrap_or(Ok(()))
    }
}
