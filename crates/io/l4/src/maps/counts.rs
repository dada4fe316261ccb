//! What the program counts: packets of servers, reasons, and connections that are open.

use std::collections::BTreeMap;

use aya::Pod;
use aya::maps::{MapData, PerCpuArray, PerCpuValues};
use aya::util::nr_cpus;

use super::Maps;
use crate::error::L4Error;
use crate::layout::{LAST_AT, LAST_ROW, LAST_ROWS};
use crate::reason::REASONS;

/// What was counted for a server, over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCount {
    /// Packets from clients.
    pub packets_in: u64,
    /// Their bytes, with all headers.
    pub bytes_in: u64,
    /// Packets to clients.
    pub packets_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// First packets.
    pub opened: u64,
    /// Last ones: FIN or RST from the server, or from the client with a valid cookie.
    pub closed: u64,
    /// How often its clock was not where it had been.
    pub clock_moved: u64,
    /// Connections begun whose client did not answer the server's SYN-ACK: among `opened` and `closed`.
    pub unanswered: u64,
}

/// The place of the server of a connection that an event says is open.
fn open_at(event: u64) -> Option<u32> {
    (event & 1 == 1).then_some((event >> 1) as u32 & LAST_AT)
}

/// Sets a counter to zero on every CPU.
pub(crate) fn clear<T: Pod>(
    map: &mut PerCpuArray<MapData, T>,
    place: u32,
    zero: T,
    name: &'static str,
) -> Result<(), L4Error> {
    let cpus = nr_cpus().map_err(|(_, error)| L4Error::map(name)(error))?;
    let zeros = PerCpuValues::try_from(vec![zero; cpus]).map_err(L4Error::map(name))?;
    map.set(place, zeros, 0).map_err(L4Error::map(name))
}

/// Adds to a counter what another one has on each CPU.
fn add_up<T: Pod>(
    map: &mut PerCpuArray<MapData, T>,
    place: u32,
    other: &PerCpuArray<MapData, T>,
    was: u32,
    add: impl Fn(T, T) -> T,
    name: &'static str,
) -> Result<(), L4Error> {
    let before = other.get(&was, 0).map_err(L4Error::map(name))?;
    let now = map.get(&place, 0).map_err(L4Error::map(name))?;
    let sums: Vec<T> = now.iter().zip(before.iter()).map(|(now, was)| add(*now, *was)).collect();
    let sums = PerCpuValues::try_from(sums).map_err(L4Error::map(name))?;
    map.set(place, sums, 0).map_err(L4Error::map(name))
}

impl Maps {
    /// What was counted for a server.
    pub fn count(&self, place: u32) -> Result<MemberCount, L4Error> {
        let per_cpu = self.counts.get(&place, 0).map_err(L4Error::map("counts"))?;
        let mut sum = MemberCount::default();
        for cpu in per_cpu.iter() {
            sum.packets_in += cpu[0];
            sum.bytes_in += cpu[1];
            sum.packets_out += cpu[2];
            sum.bytes_out += cpu[3];
            // One CPU may have taken back what another had counted.
            sum.opened = sum.opened.wrapping_add(cpu[4]);
            sum.closed += cpu[5];
            sum.clock_moved += cpu[6];
            sum.unanswered += cpu[7];
        }
        Ok(sum)
    }

    /// Counts on from what other maps have counted for a server.
    pub(crate) fn add_count(&mut self, place: u32, other: &Maps, was: u32) -> Result<(), L4Error> {
        let add = |mut sum: [u64; 8], more: [u64; 8]| {
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.wrapping_add(more));
            sum
        };
        add_up(&mut self.counts, place, &other.counts, was, add, "counts")
    }

    /// The same of one reason, by the numbers of VIPs.
    pub(crate) fn add_reason(
        &mut self,
        vip_number: u32,
        other: &Maps,
        was: u32,
        reason: u32,
    ) -> Result<(), L4Error> {
        let place = |number: u32| number * REASONS.len() as u32 + reason;
        let (is, was) = (place(vip_number), place(was));
        add_up(&mut self.reasons, is, &other.reasons, was, u64::wrapping_add, "reasons")
    }

    /// What connections did last, row by row.
    pub(crate) fn last(&self, row: u32) -> Result<[u64; LAST_ROW], L4Error> {
        self.last.get(&row, 0).map_err(L4Error::map("connections"))
    }

    pub(crate) fn set_last(&mut self, row: u32, events: [u64; LAST_ROW]) -> Result<(), L4Error> {
        self.last.set(row, events, 0).map_err(L4Error::map("connections"))
    }

    /// Forgets what was counted for a server, when its place goes to another.
    pub(crate) fn clear_count(&mut self, place: u32) -> Result<(), L4Error> {
        clear(&mut self.counts, place, [0; 8], "counts")?;
        self.end_all(place)
    }

    /// Takes all connections of a server for ended.
    pub(crate) fn end_all(&mut self, place: u32) -> Result<(), L4Error> {
        if self.open_connections(place)? == 0 {
            return Ok(());
        }
        for row in 0..LAST_ROWS {
            let events = self.last(row)?;
            if events.iter().any(|event| open_at(*event) == Some(place)) {
                let end = |event| if open_at(event) == Some(place) { event & !1 } else { event };
                self.set_last(row, events.map(end))?;
            }
        }
        self.set_open(place, 0)
    }

    /// How many connections are remembered as open, by the place of their server.
    pub(crate) fn remembered(&self) -> Result<BTreeMap<u32, u32>, L4Error> {
        let mut counted = BTreeMap::new();
        for row in 0..LAST_ROWS {
            for place in self.last(row)?.into_iter().filter_map(open_at) {
                *counted.entry(place).or_insert(0) += 1;
            }
        }
        Ok(counted)
    }

    pub(crate) fn set_open(&mut self, place: u32, connections: u32) -> Result<(), L4Error> {
        self.open.set(place, connections as i32, 0).map_err(L4Error::map("open"))
    }

    /// Connections that began and did not end, as far as first and last packets tell.
    pub fn open_connections(&self, place: u32) -> Result<u64, L4Error> {
        let now = self.open.get(&place, 0).map_err(L4Error::map("open"))?;
        Ok(u64::try_from(now).unwrap_or(0))
    }

    /// How many packets went another way, by [`REASONS`]; the row after the last VIP's is of packets
    /// without one.
    pub fn reasons(&self, vip_number: u32) -> Result<[u64; REASONS.len()], L4Error> {
        let mut sums = [0; REASONS.len()];
        for (reason, sum) in sums.iter_mut().enumerate() {
            *sum = self.reason(vip_number, reason)?;
        }
        Ok(sums)
    }

    /// The same of one reason, by its place in [`REASONS`].
    pub(crate) fn reason(&self, vip_number: u32, reason: usize) -> Result<u64, L4Error> {
        let place = vip_number * REASONS.len() as u32 + reason as u32;
        let per_cpu = self.reasons.get(&place, 0).map_err(L4Error::map("reasons"))?;
        Ok(per_cpu.iter().sum())
    }
}
