//! The hash slots of a cluster: the slot of a key, and the node that has it.

use redis::Value;

use crate::error::{LinkError, not_redis};
use crate::settings::RedisAddress;

/// How many slots a cluster has.
const SLOTS: usize = 16_384;

/// More masters than a cluster can sensibly have.
const MASTERS_MAX: usize = 1_000;

/// A range of slots and the master that has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotRange {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) master: RedisAddress,
}

/// The cluster slot of a key: the hash of the text in its first braces, or of the whole key without any.
pub fn slot_of(key: &[u8]) -> u16 {
    let open = key.iter().position(|&byte| byte == b'{').map(|at| at + 1);
    let tag = open.and_then(|open| {
        let rest = key.get(open..)?;
        let close = rest.iter().position(|&byte| byte == b'}')?;
        rest.get(..close).filter(|tag| !tag.is_empty())
    });
    crc16(tag.unwrap_or(key)) & 0x3fff
}

/// CRC-16/XMODEM, as in the cluster specification.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

/// Reads the reply to `CLUSTER SLOTS`. An entry without a host means the host that was asked.
pub(crate) fn read_slots(reply: &Value, asked: &RedisAddress) -> Result<Vec<SlotRange>, LinkError> {
    let Value::Array(rows) = reply else { return Err(not_redis()) };
    let ranges: Option<Vec<SlotRange>> =
        rows.iter().take(SLOTS).map(|row| slot_range(row, asked)).collect();
    ranges.ok_or_else(not_redis)
}

fn slot_range(row: &Value, asked: &RedisAddress) -> Option<SlotRange> {
    let Value::Array(parts) = row else { return None };
    let number = |index: usize| match parts.get(index) {
        Some(Value::Int(number)) => u16::try_from(*number).ok().filter(|&n| usize::from(n) < SLOTS),
        _ => None,
    };
    let (first, last) = (number(0)?, number(1)?);
    let Some(Value::Array(node)) = parts.get(2) else { return None };
    let Some(Value::Int(port)) = node.get(1) else { return None };
    let port = u16::try_from(*port).ok()?;
    let host = node.first().and_then(text).filter(|host| !host.is_empty() && host != "?");
    let host = match (host, asked) {
        (Some(host), _) => host,
        (None, RedisAddress::Tcp { host, .. }) => host.clone(),
        (None, RedisAddress::Unix(_)) => return None,
    };
    Some(SlotRange { first, last, master: RedisAddress::tcp(host, port) })
}

/// The text of a reply.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

/// Reads the details of `MOVED` or `ASK`: `slot host:port`.
pub(crate) fn read_redirect(details: &str, asked: &RedisAddress) -> Option<(u16, RedisAddress)> {
    let (slot, address) = details.trim().split_once(' ')?;
    let slot = slot.parse().ok().filter(|&slot: &u16| usize::from(slot) < SLOTS)?;
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let host = match (host, asked) {
        ("", RedisAddress::Tcp { host, .. }) => host.clone(),
        (host, _) => host.trim_start_matches('[').trim_end_matches(']').to_owned(),
    };
    Some((slot, RedisAddress::tcp(host, port)))
}

/// The index of the node that has each slot, if it is known.
#[derive(Clone, Debug)]
pub(crate) struct SlotMap(Vec<u16>);

const NO_NODE: u16 = u16::MAX;

impl SlotMap {
    pub(crate) fn empty() -> Self {
        SlotMap(vec![NO_NODE; SLOTS])
    }

    pub(crate) fn node_of(&self, slot: u16) -> Option<usize> {
        self.0.get(usize::from(slot)).filter(|&&node| node != NO_NODE).map(|&node| node.into())
    }

    pub(crate) fn set(&mut self, first: u16, last: u16, node: usize) {
        let Some(node) = u16::try_from(node).ok().filter(|&n| usize::from(n) < MASTERS_MAX) else {
            return;
        };
        if let Some(slots) = self.0.get_mut(usize::from(first)..=usize::from(last)) {
            slots.fill(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b"bar{foo}baz{qux}"), slot_of(b"foo"));
        assert_eq!(slot_of(b"{}foo"), crc16(b"{}foo") & 0x3fff);
        assert_eq!(slot_of(b"open{foo"), crc16(b"open{foo") & 0x3fff);
    }

    #[test]
    fn a_redirect_names_slot_and_node() {
        let asked = RedisAddress::tcp("10.0.0.1", 7000);
        let read = |details| read_redirect(details, &asked);
        assert_eq!(read("7 10.0.0.2:7001"), Some((7, RedisAddress::tcp("10.0.0.2", 7001))));
        assert_eq!(read("7 :7001"), Some((7, RedisAddress::tcp("10.0.0.1", 7001))));
        assert_eq!(read("7 [::1]:7001"), Some((7, RedisAddress::tcp("::1", 7001))));
        for details in ["", "7", "7 host", "16384 a:1", "x a:1", "7 a:99999"] {
            assert_eq!(read(details), None, "{details}");
        }
    }

    #[test]
    fn a_node_without_a_host_is_the_one_that_was_asked() {
        let asked = RedisAddress::tcp("10.0.0.1", 7000);
        let node = Value::Array(vec![Value::BulkString(Vec::new()), Value::Int(7002)]);
        let row = Value::Array(vec![Value::Int(0), Value::Int(5), node]);
        let ranges = read_slots(&Value::Array(vec![row]), &asked).unwrap();
        let master = RedisAddress::tcp("10.0.0.1", 7002);
        assert_eq!(ranges, [SlotRange { first: 0, last: 5, master }]);
    }

    #[test]
    fn a_malformed_reply_is_rejected() {
        let asked = RedisAddress::tcp("h", 1);
        for answer in [Value::Nil, Value::Array(vec![Value::Int(3)]), Value::Int(1)] {
            assert!(read_slots(&answer, &asked).is_err(), "{answer:?}");
        }
    }

    #[test]
    fn a_map_returns_the_nodes_that_were_set() {
        let mut map = SlotMap::empty();
        assert_eq!(map.node_of(5), None);
        map.set(0, 5, 2);
        map.set(9, 3, 1);
        assert_eq!([map.node_of(5), map.node_of(6)], [Some(2), None]);
    }
}
