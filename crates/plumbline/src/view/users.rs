//! Users by name and by number, only from /etc/passwd: directory services may hang, so they are not asked.

use std::{collections::HashMap, fs};

use model::text::printable;

/// Names by number. Of several with a number the first counts.
pub fn by_number() -> HashMap<u32, String> {
    let mut users = HashMap::new();
    for (name, uid) in parse(&passwd()) {
        users.entry(uid).or_insert_with(|| printable(name.as_bytes()));
    }
    users
}

/// The number of the user with this name or number.
///
/// # Errors
/// All user names, if there is no such user.
pub fn number_of(user: &str) -> Result<u32, Vec<String>> {
    let passwd = passwd();
    let named = || parse(&passwd).find(|(name, _)| *name == user).map(|(_, uid)| uid);
    let number = user.parse().ok().or_else(named);
    number.ok_or_else(|| parse(&passwd).map(|(name, _)| name.to_owned()).collect())
}

fn passwd() -> String {
    fs::read_to_string("/etc/passwd").unwrap_or_default()
}

/// Names and numbers of passwd(5).
fn parse(passwd: &str) -> impl Iterator<Item = (&str, u32)> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        Some((fields.next()?, fields.nth(1)?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_broken_are_left_out() {
        let users: Vec<_> = parse("root:x:0:0:root:/root:/bin/bash\nbroken\ntoor:x:0:0::/:\nodd:x:7:7::/:\n").collect();
        assert_eq!(users, [("root", 0), ("toor", 0), ("odd", 7)]);
    }

    #[test]
    fn a_user_is_known_by_name_and_by_number() {
        assert_eq!((number_of("root"), number_of("4242424242")), (Ok(0), Ok(4_242_424_242)));
        assert_eq!(by_number().get(&0).map(String::as_str), Some("root"));
        assert!(number_of("nobody-has-this-name").unwrap_err().contains(&"root".to_owned()));
    }
}
