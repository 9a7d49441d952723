//! `clients` of `[tls]`: one word for all, or a table of who may use which exports.

use host::tls::Clients;
use host::tls::clients::{ClientMatch, Grant, Scope, TlsClient};

use crate::forms::ValueForm;
use crate::limits;
use crate::names::check_name;
use crate::sheet::{Sheet, SheetSection};

const WORDS: &str = "\"certified\" (every client of this cluster), \"any\" (who encrypts), or a table such as \
     { backup = [\"db/data:ro\"] }";

pub(crate) fn form() -> ValueForm<Clients> {
    let write = |clients: &Clients| match clients {
        Clients::Certified => "certified".to_owned(),
        Clients::Any => "any".to_owned(),
        Clients::Listed(list) => list.iter().map(|client| key_of(&client.holder)).collect::<Vec<_>>().join(", "),
    };
    let bounds = "`\"certified\"`, `\"any\"`, or a table";
    ValueForm::new("word", bounds, Clients::Certified, |text, _| word(text), write).loaded(|sheet, tls, key, _| {
        if tls.table(key).is_none() {
            return sheet.value(tls, key, word);
        }
        let table = sheet.section(tls, key)?;
        Some(Clients::Listed(listed(sheet, &table)))
    })
}

fn word(text: &str) -> Result<Clients, String> {
    match text {
        "certified" => Ok(Clients::Certified),
        "any" => Ok(Clients::Any),
        other => Err(format!("{other:?} is not a choice of clients; write {WORDS}")),
    }
}

fn listed<'t>(sheet: &mut Sheet<'t>, table: &SheetSection<'t>) -> Vec<TlsClient> {
    let mut list = Vec::new();
    for key in table.keys().take(limits::TLS_CLIENTS_MAX + 1) {
        match holder(key) {
            Ok(holder) => {
                let grants = sheet.values(table, key, grant).unwrap_or_default();
                list.push(TlsClient { holder, grants });
            }
            Err(reason) => sheet.at(table.span_of(key), reason),
        }
    }
    if list.len() > limits::TLS_CLIENTS_MAX {
        let most = limits::TLS_CLIENTS_MAX;
        sheet.at(table.span.clone(), format!("clients: there are more than {most}; give some of them one certificate"));
    } else if table.keys().next().is_none() {
        let advice = "name who may come in, or write \"certified\" for every client of this cluster";
        sheet.at(table.span.clone(), format!("clients: the table is empty, so nobody could come in; {advice}"));
    }
    list
}

/// Reads a client's key: its name in this cluster, or another that its certificate has.
fn holder(key: &str) -> Result<ClientMatch, String> {
    if let Some(uri) = key.strip_prefix("uri:") {
        let ours = uri.get(..9).is_some_and(|scheme| scheme.eq_ignore_ascii_case("farshore:"));
        return match uri {
            "" => Err(format!("clients: {key:?} names nobody; write the URI behind \"uri:\"")),
            _ if ours => Err(format!("clients: {key:?} is written as the last part of it alone, the client's name")),
            _ => Ok(ClientMatch::Uri(uri.to_owned())),
        };
    }
    if let Some(host) = key.strip_prefix("dns:") {
        let sound = !host.is_empty() && !host.chars().any(|letter| letter.is_control() || letter.is_whitespace());
        return match sound {
            true => Ok(ClientMatch::Host(host.to_ascii_lowercase())),
            false => Err(format!("clients: {key:?} names no host; write \"dns:\" and the name in the certificate")),
        };
    }
    check_name("client", key)
        .map(|()| ClientMatch::Client(key.to_owned()))
        .map_err(|reason| format!("clients: {reason}; or name a certificate as \"dns:HOST\" or \"uri:URI\""))
}

/// Reads an export, with `:ro` behind it where it may only be read.
fn grant(text: &str) -> Result<Grant, String> {
    let (name, read_only) = match text.strip_suffix(":ro") {
        Some(name) => (name, true),
        None => (text, false),
    };
    let scope = match name.split_once('/') {
        _ if name == "*" => Some(Scope::All),
        Some((group, "*")) => check_name("group", group).is_ok().then(|| Scope::Group(group.to_owned())),
        Some((group, volume)) => {
            let is_sound = check_name("group", group).is_ok() && check_name("volume", volume).is_ok();
            is_sound.then(|| Scope::Export(name.to_owned()))
        }
        None => None,
    };
    match scope {
        Some(scope) => Ok(Grant { scope, read_only }),
        None => Err(format!(
            "{text:?} is no export; write \"GROUP/VOLUME\", \"GROUP/*\" or \"*\", with \":ro\" behind it for reading only"
        )),
    }
}

/// As the file has it.
pub(crate) fn key_of(holder: &ClientMatch) -> String {
    match holder {
        ClientMatch::Client(name) => name.clone(),
        ClientMatch::Host(name) => format!("dns:{name}"),
        ClientMatch::Uri(uri) => format!("uri:{uri}"),
    }
}

/// As the file has it.
pub(crate) fn text_of(scope: &Scope) -> String {
    match scope {
        Scope::All => "*".to_owned(),
        Scope::Group(group) => format!("{group}/*"),
        Scope::Export(name) => name.clone(),
    }
}
