//! Memory of a device: every call copies it with the adapter, and none accesses its addresses.
#![expect(unsafe_code, reason = "buffers of the API are addresses")]

mod ranks;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use nexar::{CpuAdapter, DataType, DeviceAdapter, IoVec, NexarError, ReduceOp, Result};

use ranks::{address_mut, run_on};

/// A device whose memory is a map. Its addresses are not valid on the host.
#[derive(Default)]
struct Card(Mutex<HashMap<u64, Vec<u8>>>);

impl Card {
    fn put(&self, ptr: u64, bytes: &[u8]) {
        self.0.lock().unwrap().insert(ptr, bytes.to_vec());
    }

    fn get(&self, ptr: u64) -> Vec<u8> {
        self.0.lock().unwrap()[&ptr].clone()
    }
}

impl DeviceAdapter for Card {
    unsafe fn stage_for_send(&self, ptr: u64, size_bytes: usize) -> Result<Vec<u8>> {
        let mut bytes = self.get(ptr);
        bytes.truncate(size_bytes);
        Ok(bytes)
    }

    unsafe fn receive_to_device(&self, data: &[u8], dst_ptr: u64) -> Result<()> {
        self.put(dst_ptr, data);
        Ok(())
    }

    unsafe fn reduce_inplace(
        &self,
        _: u64,
        _: &[u8],
        _: usize,
        _: DataType,
        _: ReduceOp,
    ) -> Result<()> {
        Err(NexarError::device("this card cannot compute"))
    }
}

#[test]
fn memory_of_a_device_is_copied_by_its_adapter() {
    let card = Arc::new(Card::default());
    let shared = Arc::clone(&card);
    run_on(card, 2, move |client| {
        let (card, rank) = (&shared, client.rank() as u8);
        // Each rank has addresses of its own, the same in every run.
        let at = |number: u64| 16 * (u64::from(rank) + 1) + number;
        card.put(at(0), &[rank + 1; 4]);
        // SAFETY: the card has the bytes of the call at these addresses, here and below.
        unsafe { client.all_reduce(at(0), 4, DataType::U8, ReduceOp::Sum) }.unwrap();
        assert_eq!(card.get(at(0)), [3; 4]);
        card.put(at(1), &[rank; 2]);
        // SAFETY: as above.
        unsafe { client.all_gather(at(1), at(2), 2, DataType::U8) }.unwrap();
        assert_eq!(card.get(at(2)), [0, 0, 1, 1]);
        // SAFETY: as above.
        unsafe { client.all_reduce_bucketed(&[(at(1), 2)], DataType::U8, ReduceOp::Max) }.unwrap();
        assert_eq!(card.get(at(1)), [1, 1]);
        let peer = 1 - client.rank();
        card.put(at(3), &[rank; 7]);
        // SAFETY: as above.
        unsafe { client.send(at(3), 7, peer, 1) }.unwrap();
        // SAFETY: as above.
        unsafe { client.recv(at(4), 7, peer, 1) }.unwrap();
        assert_eq!(card.get(at(4)), [1 - rank; 7]);

        let [one, other] = [at(0), at(4)].map(|ptr| IoVec { ptr, len: 2 });
        // SAFETY: as above.
        let all = unsafe { card.stage_for_send_iov(&[one, other]) }.unwrap();
        assert_eq!(all, [3, 3, 1 - rank, 1 - rank]);
        // A copy that is too short is an error of the call.
        // SAFETY: the length is checked before the memory is used.
        let short = unsafe { client.send(at(3), 8, peer, 1) }.unwrap_err();
        let expected = NexarError::BufferSizeMismatch { expected: 8, actual: 7 };
        assert_eq!(short.to_string(), expected.to_string());
        client.barrier().unwrap();
    });
}

#[test]
fn host_memory_is_copied_and_reduced_in_place() {
    let cpu = CpuAdapter::new();
    let mut data = [1f32, 2.0, 3.0];
    let ptr = address_mut(&mut data);
    // SAFETY: there are 12 bytes, here and below.
    let copy = unsafe { cpu.stage_for_send(ptr, 12) }.unwrap();
    // SAFETY: as above.
    unsafe { cpu.reduce_inplace(ptr, &copy, 3, DataType::F32, ReduceOp::Prod) }.unwrap();
    assert_eq!(data, [1.0, 4.0, 9.0]);
    // SAFETY: the length is checked before the memory is used.
    let short = unsafe { cpu.reduce_inplace(ptr, &copy, 4, DataType::F32, ReduceOp::Prod) };
    let expected =
        matches!(short, Err(NexarError::BufferSizeMismatch { expected: 16, actual: 12 }));
    assert!(expected);
    // SAFETY: as above.
    unsafe { cpu.receive_to_device(&copy, ptr) }.unwrap();
    assert_eq!(data, [1.0, 2.0, 3.0]);
}
