use super::table::{Columns, number, small};

/// The columns of `show servers state` that are read.
const NAMES: [&str; 8] = [
    "be_id",
    "srv_name",
    "srv_op_state",
    "srv_admin_state",
    "srv_uweight",
    "srv_iweight",
    "srv_check_state",
    "srv_agent_state",
];

/// `srv_admin_state`: taken out, by an administrator, the configuration, a tracked server or a name
/// that does not resolve.
const ADMIN_MAINTENANCE: u32 = 0x01 | 0x02 | 0x04 | 0x20 | 0x40;
/// `srv_admin_state`: drained, by an administrator or a tracked server.
const ADMIN_DRAIN: u32 = 0x08 | 0x10;
/// `srv_agent_state`, `srv_check_state`: the configuration names such a check.
const CHECK_CONFIGURED: u32 = 0x02;
/// `srv_agent_state`, `srv_check_state`: it is switched on.
const CHECK_ENABLED: u32 = 0x04;

/// One server's row in `show servers state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerState {
    /// 0 stopped, 1 starting (slowstart), 2 running, 3 stopping.
    pub(super) operation: u32,
    pub(super) admin: u32,
    pub(super) weight: u32,
    pub(super) initial_weight: u32,
    check: u32,
    agent: u32,
}

impl ServerState {
    pub(super) fn in_maintenance(&self) -> bool {
        self.admin & ADMIN_MAINTENANCE != 0
    }

    pub(super) fn drained(&self) -> bool {
        self.admin & ADMIN_DRAIN != 0
    }

    pub(super) fn checked(&self) -> bool {
        self.check & (CHECK_CONFIGURED | CHECK_ENABLED) == CHECK_CONFIGURED | CHECK_ENABLED
    }

    pub(super) fn agent_configured(&self) -> bool {
        self.agent & CHECK_CONFIGURED != 0
    }

    /// An agent paused by maintenance counts: it comes back with the server.
    pub(super) fn agent_active(&self) -> bool {
        self.agent_configured() && self.agent & CHECK_ENABLED != 0
    }
}

/// Reads the answer of `show servers state`, of one backend or all.
pub(super) struct StateTable(Columns<{ NAMES.len() }>);

impl StateTable {
    pub(super) fn new() -> Self {
        StateTable(Columns::new(NAMES))
    }

    /// Calls `each` with every server's backend by HAProxy's number, its name and its state, in HAProxy's
    /// order.
    pub(super) fn read(
        &mut self,
        text: &[u8],
        mut each: impl FnMut(u64, &[u8], ServerState) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut header_seen = false;
        for line in text.split(|byte| *byte == b'\n') {
            if let Some(header) = line.strip_prefix(b"# ") {
                self.0.learn(header, b' ')?;
                header_seen = true;
            } else if header_seen && !line.is_empty() {
                let row = self.row(line)?;
                each(number("be_id", row[0])?, row[1], state(&row)?)?;
            }
        }
        if !header_seen {
            let text = String::from_utf8_lossy(text.get(..80).unwrap_or(text));
            return Err(format!("`show servers state` answered {text:?}"));
        }
        Ok(())
    }

    fn row<'a>(&self, line: &'a [u8]) -> Result<[&'a [u8]; NAMES.len()], String> {
        let mut row: [&[u8]; NAMES.len()] = [&[]; NAMES.len()];
        let mut columns = 0;
        for (column, value) in line.split(|byte| *byte == b' ').enumerate() {
            columns = column + 1;
            if let Some(field) = self.0.field(column) {
                row[field] = value;
            }
        }
        if columns < self.0.len() {
            return Err("a row of `show servers state` is shorter than its header".to_owned());
        }
        Ok(row)
    }
}

fn state(row: &[&[u8]; NAMES.len()]) -> Result<ServerState, String> {
    Ok(ServerState {
        operation: small(NAMES[2], row[2])?,
        admin: small(NAMES[3], row[3])?,
        weight: small(NAMES[4], row[4])?,
        initial_weight: small(NAMES[5], row[5])?,
        check: small(NAMES[6], row[6])?,
        agent: small(NAMES[7], row[7])?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state \
                          srv_uweight srv_iweight srv_check_state srv_agent_state srv_new\n";

    fn read(rows: &str) -> Result<Vec<(u64, String, ServerState)>, String> {
        let mut seen = Vec::new();
        StateTable::new().read(format!("{HEADER}{rows}").as_bytes(), |id, name, state| {
            seen.push((id, String::from_utf8_lossy(name).into_owned(), state));
            Ok(())
        })?;
        Ok(seen)
    }

    #[test]
    fn flags_say_what_took_a_server_out_and_whether_an_agent_is_active() {
        let servers = read(
            "3 shop 1 s1 - 2 0 0 10 6 0 -\n3 shop 2 s2 - 2 8 20 10 2 22 -\n3 shop 3 s3 - 0 5 1 1 14 18 -",
        )
        .unwrap();
        let [(3, _, own_zero), (3, _, drained), (3, name, disabled)] = &servers[..] else {
            panic!("{servers:?}")
        };
        assert!(!own_zero.drained() && !own_zero.in_maintenance() && own_zero.checked());
        assert!(drained.drained() && drained.agent_active() && !drained.checked());
        assert_eq!((drained.weight, drained.initial_weight), (20, 10));
        assert!(disabled.in_maintenance() && disabled.agent_configured());
        assert!(!disabled.agent_active());
        assert_eq!(name, "s3");
    }

    #[test]
    fn a_backend_may_have_no_servers() {
        assert_eq!(read("").unwrap(), Vec::new());
    }

    #[test]
    fn what_is_not_the_table_is_refused() {
        assert!(read("3 shop 1 s1\n").unwrap_err().contains("shorter"));
        assert!(read("3 shop 1 s1 - x 0 0 10 6 0 -").unwrap_err().contains("not a number"));
        let error = StateTable::new().read(b"Can't find backend.", |_, _, _| Ok(())).unwrap_err();
        assert!(error.contains("Can't find backend."));
    }
}
