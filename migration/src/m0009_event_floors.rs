//! Position up to which the event feed of each PSP was deleted.

pub(crate) const UP: &[&str] = &["CREATE TABLE event_floors (
         psp_id TEXT NOT NULL,
         position BIGINT NOT NULL,
         event_id TEXT NOT NULL,
         created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         PRIMARY KEY (psp_id),
         FOREIGN KEY (psp_id) REFERENCES psps (id)
     )"];
