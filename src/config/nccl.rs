//! NCCL's names for settings of nexar, for programs that were written for NCCL.
//!
//! Invariants: no value is an error, because NCCL ignores values that it does not know; a nexar
//! name takes precedence over an NCCL name, in any order of the environment.

use super::settings::{Config, Debug, Family};

pub(super) fn apply(config: &mut Config, name: &str, value: &str) {
    let text = || Some(value.to_owned()).filter(|value| !value.is_empty());
    match name {
        "NCCL_COMM_BLOCKING" => config.blocking = flag(value),
        "NCCL_COMM_ID" => config.root_address = text(),
        "NCCL_DEBUG" => config.debug = debug(value),
        "NCCL_DEBUG_FILE" => config.debug_file = text(),
        "NCCL_DEBUG_SUBSYS" => config.debug_subsys = subsystems(value),
        "NCCL_SOCKET_FAMILY" => config.socket_family = family(value),
        "NCCL_SOCKET_IFNAME" => config.socket_ifname = value.to_owned(),
        _ => {}
    }
}

fn flag(value: &str) -> Option<bool> {
    match value.trim() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

fn debug(value: &str) -> Debug {
    match value.to_ascii_uppercase().as_str() {
        "WARN" | "ABORT" => Debug::Warn,
        "INFO" => Debug::Info,
        "TRACE" => Debug::Trace,
        _ => Debug::Silent,
    }
}

/// The modules of nexar that correspond to NCCL's subsystems. Empty, which means all modules, if
/// one subsystem has no counterpart or if the list excludes subsystems.
fn subsystems(value: &str) -> Vec<String> {
    if value.starts_with('^') {
        return Vec::new();
    }
    let module = |word: &str| match word.trim().to_ascii_uppercase().as_str() {
        "INIT" | "BOOTSTRAP" | "ENV" => Some("bootstrap"),
        "COLL" | "P2P" | "TUNING" => Some("comm"),
        "NET" | "SHM" => Some("transport"),
        "CALL" | "REG" | "ALLOC" => Some("capi"),
        _ => None,
    };
    let modules: Option<Vec<_>> = value.split(',').map(module).collect();
    modules.unwrap_or_default().into_iter().map(str::to_owned).collect()
}

fn family(value: &str) -> Family {
    match value.to_ascii_uppercase().as_str() {
        "AF_INET" => Family::V4,
        "AF_INET6" => Family::V6,
        _ => Family::Any,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(names: &[(&str, &str)]) -> Config {
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        Config::parse(names.iter().map(owned).collect(), true).unwrap()
    }

    #[test]
    fn names_of_nccl_set_the_same_settings() {
        let config = parse(&[
            ("NCCL_COMM_BLOCKING", "0"),
            ("NCCL_COMM_ID", "[::1]:7000"),
            ("NCCL_DEBUG", "info"),
            ("NCCL_DEBUG_FILE", "log.%h.%p"),
            ("NCCL_DEBUG_SUBSYS", "INIT,NET"),
            ("NCCL_SOCKET_FAMILY", "AF_INET6"),
            ("NCCL_SOCKET_IFNAME", "^docker,lo"),
        ]);
        assert_eq!(config.blocking, Some(false));
        assert_eq!(config.root_address.as_deref(), Some("[::1]:7000"));
        assert_eq!(config.comm_id, None);
        assert_eq!(config.debug, Debug::Info);
        assert_eq!(config.debug_file.as_deref(), Some("log.%h.%p"));
        assert_eq!(config.debug_subsys, ["bootstrap", "transport"]);
        assert_eq!(config.socket_family, Family::V6);
        assert_eq!(config.socket_ifname, "^docker,lo");
    }

    #[test]
    fn a_nexar_name_takes_precedence_over_an_nccl_name() {
        for names in [
            [("NCCL_DEBUG", "TRACE"), ("NEXAR_DEBUG", "WARN")],
            [("NEXAR_DEBUG", "WARN"), ("NCCL_DEBUG", "TRACE")],
        ] {
            assert_eq!(parse(&names).debug, Debug::Warn);
        }
    }

    #[test]
    fn values_that_only_nccl_knows_are_ignored() {
        let silent =
            parse(&[("NCCL_DEBUG", "VERSION"), ("NCCL_IB_HCA", "mlx5"), ("NCCL_ALGO", "?")]);
        assert_eq!(silent.debug, Debug::Silent);
        assert_eq!(silent.algo, "");
        for all in ["ALL", "INIT,GRAPH", "^COLL", ""] {
            assert!(parse(&[("NCCL_DEBUG_SUBSYS", all)]).debug_subsys.is_empty(), "{all}");
        }
    }

    #[test]
    fn without_a_stand_in_the_names_of_nccl_are_ignored() {
        let names = vec![("NCCL_DEBUG".to_owned(), "TRACE".to_owned())];
        assert_eq!(Config::parse(names, false).unwrap().debug, Debug::Silent);
    }
}
