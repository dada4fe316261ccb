use super::table::{number, small};

/// What `show info` says of the process that answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessInfo {
    pub(super) pid: u32,
    /// Seconds since 1970; 0 where HAProxy does not tell (before 2.5).
    pub(super) started_at: u64,
    /// A reload or a stop is under way: this process only serves what it already has.
    pub(super) stopping: bool,
}

impl ProcessInfo {
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let mut pid = None;
        let mut info = ProcessInfo::default();
        for (key, value) in fields(text) {
            match key {
                b"Pid" => pid = Some(small("Pid", value)?),
                b"Start_time_sec" => info.started_at = number("Start_time_sec", value)?,
                b"Stopping" => info.stopping = value != b"0",
                _ => {}
            }
        }
        info.pid = pid.ok_or_else(|| {
            let text = String::from_utf8_lossy(text.get(..80).unwrap_or(text));
            format!("`show info` answered {text:?}")
        })?;
        Ok(info)
    }
}

/// The value of one key of `show info`, for what only people read.
pub(super) fn value(text: &[u8], wanted: &str) -> Option<String> {
    fields(text)
        .find(|(key, _)| *key == wanted.as_bytes())
        .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
}

fn fields(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_identified_by_its_pid_and_start_time() {
        let text = b"Name: HAProxy\nPid: 12\nUptime: 0d 0h00m01s\nStopping: 1\nStart_time_sec: 99";
        let expected = ProcessInfo { pid: 12, started_at: 99, stopping: true };
        assert_eq!(ProcessInfo::parse(text).unwrap(), expected);
        assert_eq!(value(text, "Name").as_deref(), Some("HAProxy"));
        assert_eq!(value(text, "Uptime").as_deref(), Some("0d 0h00m01s"));
        assert_eq!(value(text, "Other"), None);
    }

    #[test]
    fn another_program_is_recognised() {
        assert!(ProcessInfo::parse(b"HTTP/1.1 400 Bad").unwrap_err().contains("HTTP/1.1"));
    }
}
