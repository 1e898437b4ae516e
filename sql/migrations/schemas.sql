-- For sqlc's eyes only: a migrator makes its context's schema itself. any_context stands for each
-- of them in what all contexts have: migrations/shared, and the queries on those tables.
CREATE SCHEMA any_context;
CREATE SCHEMA calendar;
CREATE SCHEMA promotion;
CREATE SCHEMA crm;
