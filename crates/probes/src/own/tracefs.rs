//! The fields of a tracepoint's record, as tracefs describes them (Documentation/trace/events.rst).

use std::{fs, path::Path};

/// Where tracefs is mounted; the second place is where older systems have it.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A field of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TracepointField {
    pub name: String,
    pub offset: u32,
    pub size: u32,
    pub is_signed: bool,
}

/// The fields of a tracepoint's record; if they cannot be read, what is missing, and the cure.
pub(crate) fn fields(group: &str, name: &str) -> Result<Vec<TracepointField>, (String, String)> {
    let Some(folder) = PLACES.iter().map(Path::new).find(|folder| folder.join("events").exists()) else {
        let fix = "`mount -t tracefs tracefs /sys/kernel/tracing`, or a kernel with CONFIG_FTRACE";
        return Err(("tracefs is not mounted at /sys/kernel/tracing".into(), fix.into()));
    };
    let path = folder.join("events").join(group).join(name).join("format");
    let text = fs::read_to_string(&path)
        .map_err(|error| (format!("{} cannot be read: {error}", path.display()), String::new()))?;
    Ok(parse(&text))
}

/// `field:unsigned int nr_sector; offset:24; size:4; signed:0;`, with tabs between them.
fn parse(text: &str) -> Vec<TracepointField> {
    let field = |line: &str| {
        let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
        let name = parts.next()?.split([' ', '*']).next_back()?.split('[').next()?.to_owned();
        let mut number = |key: &str| parts.next()?.strip_prefix(key)?.strip_prefix(':')?.parse().ok();
        let (offset, size, signed): (_, _, u32) = (number("offset")?, number("size")?, number("signed")?);
        Some(TracepointField { name, offset, size, is_signed: signed == 1 })
    };
    // Every tracepoint has the fields `common_*`; they are left out.
    text.lines().filter_map(field).filter(|field| !field.name.starts_with("common_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_of_a_tracepoint_is_understood() {
        let text = "name: block_rq_issue\nID: 1\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
                    \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
                    \tfield:char comm[16];\toffset:40;\tsize:16;\tsigned:0;\n\tgarbage\n";
        let found = parse(text);
        let brief: Vec<_> = found.iter().map(|field| (field.name.as_str(), field.offset, field.size)).collect();
        assert_eq!(brief, [("dev", 8, 4), ("sector", 16, 8), ("comm", 40, 16)]);
    }
}
