//! The routes of keys, transactions, sessions and events: what Consul keeps in its log, and Convoke too.

use super::{events, kv, session, snapshot, txn};
use crate::http::{Route, route_table};

pub(super) fn routes() -> Vec<Route> {
    route_table! {
        GET "/v1/kv/" [Read Key] with query as waiting => kv::get_all,
        PUT "/v1/kv/" [Put Key] with query takes raw => kv::no_key,
        DELETE "/v1/kv/" [Delete Key] with query => kv::delete_all,
        GET "/v1/kv/{*key}" [Read Key] with query as waiting => kv::get,
        PUT "/v1/kv/{*key}" [Put Key] with query takes raw => kv::put,
        DELETE "/v1/kv/{*key}" [Delete Key] with query => kv::delete,
        PUT "/v1/event/fire/" [Put Key] with query takes raw => events::no_name,
        PUT "/v1/event/fire/{*name}" [Put Key] with query takes raw => events::fire,
        GET "/v1/event/list" [Read Key] with query as waiting => events::list,
        GET "/v1/snapshot" [Backup Log] with query as export => snapshot::save,
        PUT "/v1/snapshot" [Backup Log] with query takes raw => snapshot::restore,
        PUT "/v1/txn" [Put Key | Delete Key | Read Key] with query takes raw => txn::txn,
        PUT "/v1/session/create" [Lock LockName | Lock Election | Put Key] with query takes raw => session::create,
        PUT "/v1/session/destroy/{id}" [Lock LockName | Lock Election | Put Key | Resolve Log] with query takes raw => session::destroy,
        PUT "/v1/session/destroy/" [Lock LockName | Lock Election | Put Key | Resolve Log] with query takes raw => session::no_session,
        PUT "/v1/session/renew/{id}" [Lock LockName | Lock Election | Put Key] with query takes raw as renewal => session::renew,
        PUT "/v1/session/renew/" [Lock LockName | Lock Election | Put Key] with query takes raw => session::no_session,
        GET "/v1/session/info/{id}" [Lock LockName | Lock Election | Put Key | Observe Log] with query as waiting => session::info,
        GET "/v1/session/info/" [Lock LockName | Lock Election | Put Key | Observe Log] with query => session::no_session,
        GET "/v1/session/node/{node}" [Lock LockName | Lock Election | Put Key | Observe Log] with query as waiting => session::of_node,
        GET "/v1/session/list" [Lock LockName | Lock Election | Put Key | Observe Log] with query as waiting => session::list,
    }
}
