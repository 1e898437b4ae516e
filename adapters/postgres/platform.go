package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// PlatformError says what the platform's tables lack that the worker needs.
type PlatformError struct{ Problems []string }

func (e *PlatformError) Error() string {
	return "the platform's tables are not as the worker needs them:\n  " + strings.Join(e.Problems, "\n  ")
}

// need is a column that the worker reads or writes, and the types it may have.
type need struct {
	column string
	types  []string
}

// needs are the platform's tables of each context, as far as the worker touches them (spec:
// domain, tables). They may have more columns; the worker never reads those.
var needs = map[string]map[string][]need{
	"calendar": {
		"availability_slots": {
			{"id", uuidType}, {"tenant_id", uuidType}, {"agent_user_id", uuidType}, {"start_at", momentType}, {"end_at", momentType},
			{"min_lead_time_minutes", integerType}, {"auto_confirm", []string{"boolean"}}, {"status", textTypes},
			{"version", integerType}, {"created_at", momentType}, {"updated_at", momentType},
		},
		"calendar_events": {
			{"id", uuidType}, {"tenant_id", uuidType}, {"owner_user_id", uuidType}, {"client_user_id", uuidType}, {"kind", textTypes},
			{"origin", textTypes}, {"status", textTypes}, {"cancel_reason", textTypes}, {"start_at", momentType}, {"end_at", momentType},
			{"time_zone", textTypes}, {"appointment_id", uuidType}, {"version", integerType}, {"created_at", momentType}, {"updated_at", momentType},
		},
		"event_reminders": {
			{"id", uuidType}, {"event_id", uuidType}, {"tenant_id", uuidType}, {"offset_minutes", integerType}, {"due_at", momentType},
			{"status", textTypes}, {"sent_at", momentType}, {"version", integerType}, {"created_at", momentType}, {"updated_at", momentType},
		},
		"appointments": {
			{"id", uuidType}, {"tenant_id", uuidType}, {"slot_id", uuidType}, {"calendar_event_id", uuidType}, {"lead_id", uuidType},
			{"agent_user_id", uuidType}, {"investor_user_id", uuidType}, {"status", textTypes}, {"pending_expires_at", momentType},
			{"cancelled_by", uuidType}, {"version", integerType}, {"created_at", momentType}, {"updated_at", momentType},
		},
	},
	"promotion": {
		"promotion_purchases": {
			{"id", uuidType}, {"tenant_id", uuidType}, {"package_kind", textTypes}, {"status", textTypes}, {"payment_status", textTypes},
			{"starts_at", momentType}, {"ends_at", momentType}, {"version", integerType}, {"created_at", momentType}, {"updated_at", momentType},
		},
		"promotion_targets": {{"purchase_id", uuidType}, {"target_type", textTypes}, {"target_id", uuidType}},
	},
	"crm": {"leads": {
		{"id", uuidType}, {"tenant_id", uuidType}, {"executor_agent_user_id", uuidType}, {"primary_investor_user_id", uuidType},
		{"status", textTypes}, {"expires_at", momentType}, {"expired_at", momentType}, {"version", integerType},
		{"created_at", momentType}, {"updated_at", momentType},
	}},
}

var (
	uuidType    = []string{"uuid"}
	momentType  = []string{"timestamp with time zone"}
	integerType = []string{"integer"}
	textTypes   = []string{"text", "character varying"}
)

// indexes are those without which a job would read whole tables, as PostgreSQL words them, less casts and brackets.
var indexes = map[string]map[string]string{
	"calendar": {
		"ix_event_reminders_status_due_at":   "CREATE INDEX ix_event_reminders_status_due_at ON calendar.event_reminders USING btree due_at, id WHERE status = 'Pending'",
		"ix_appointments_pending_expires_at": "CREATE INDEX ix_appointments_pending_expires_at ON calendar.appointments USING btree pending_expires_at, id WHERE status = 'Pending'",
		"ix_event_reminders_event_id":        "CREATE INDEX ix_event_reminders_event_id ON calendar.event_reminders USING btree event_id",
	},
	"promotion": {"ix_promotion_purchases_ends_at": "CREATE INDEX ix_promotion_purchases_ends_at ON promotion.promotion_purchases USING btree ends_at, id WHERE status = 'Active'"},
	"crm":       {"ix_leads_expires_at": "CREATE INDEX ix_leads_expires_at ON crm.leads USING btree expires_at, id WHERE status = 'Active'"},
}

// checkPlatform returns a *PlatformError where the platform's tables lack a column, have it with
// another type, or have an index of one of our names with another definition; migrated: or lack it.
func (m *Migrator) checkPlatform(ctx context.Context, migrated bool) error {
	var problems []string
	tables, err := m.columns(ctx)
	if err != nil {
		return err
	}
	for table, columns := range needs[m.context] {
		name := m.context + "." + table
		found := tables[name]
		if len(found) == 0 {
			problems = append(problems, fmt.Sprintf("table %s is missing; for a new system: migrate up --with-platform-tables", name))
			continue
		}
		for _, n := range columns {
			kind, ok := found[n.column]
			switch {
			case !ok:
				problems = append(problems, fmt.Sprintf("%s lacks the column %s (%s)", name, n.column, n.types[0]))
			case !slices.Contains(n.types, kind):
				problems = append(problems, fmt.Sprintf("%s.%s is %s: %s is needed", name, n.column, kind, n.types[0]))
			}
		}
	}
	for index, want := range indexes[m.context] {
		problem, err := m.checkIndex(ctx, index, want, migrated)
		if err != nil {
			return err
		}
		if problem != "" {
			problems = append(problems, problem)
		}
	}
	if len(problems) > 0 {
		slices.Sort(problems)
		return &PlatformError{problems}
	}
	return nil
}

// columns returns the types of the columns that the context's tables have, in one trip.
func (m *Migrator) columns(ctx context.Context) (map[string]map[string]string, error) {
	found := make(map[string]map[string]string)
	var names []string
	for table := range needs[m.context] {
		name := m.context + "." + table
		names, found[name] = append(names, name), make(map[string]string)
	}
	rows, err := m.db.QueryContext(ctx, `
		SELECT t.name, a.attname, format_type(a.atttypid, NULL)
		FROM unnest($1::text[]) AS t (name)
		JOIN pg_attribute AS a ON a.attrelid = to_regclass(t.name) AND a.attnum > 0 AND NOT a.attisdropped`, names)
	if err != nil {
		return nil, fmt.Errorf("look at the tables of %s: %w", m.context, err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err tells
	for rows.Next() {
		var table, column, kind string
		if err := rows.Scan(&table, &column, &kind); err != nil {
			return nil, err
		}
		found[table][column] = kind
	}
	return found, rows.Err()
}

// checkIndex does not trust a name: an index of it may be another one, or one whose building
// was broken off; and one that was built may have been dropped.
func (m *Migrator) checkIndex(ctx context.Context, index, want string, migrated bool) (problem string, err error) {
	var definition string
	var valid bool
	err = m.db.QueryRowContext(ctx, `
		SELECT pg_get_indexdef(i.indexrelid), i.indisvalid
		FROM pg_index AS i WHERE i.indexrelid = to_regclass($1)`, m.context+"."+index).Scan(&definition, &valid)
	switch {
	case errors.Is(err, sql.ErrNoRows) && migrated:
		return fmt.Sprintf("index %s.%s is missing, someone dropped it: make it again as the worker's migrations do", m.context, index), nil
	case errors.Is(err, sql.ErrNoRows):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("look at index %s: %w", index, err)
	}
	plain := strings.NewReplacer("(", "", ")", "", "::text", "").Replace(definition)
	switch {
	case plain != want:
		return fmt.Sprintf("index %s.%s is another one: it is %q", m.context, index, definition), nil
	case !valid:
		return fmt.Sprintf("index %s.%s is invalid, its building was broken off: drop it and run this again", m.context, index), nil
	}
	return "", nil
}
