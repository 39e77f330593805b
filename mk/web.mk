# The dashboard: the files of web/ as they are and gzipped, embedded in the server's archive. WEB_FILES is all that is
# served.
WEB_FILES := index.html style.css chat.css app.js api.js ui.js chat.js answer.js conversation.js history.js journal.js drawer.js settings.js gauge.js markdown.js highlight.js machine.js workers.js experts.js icon.svg
WEB_SRC := $(WEB_FILES:%=web/%)

# The list of files, rewritten only when it changes.
WEB_IMAGE := $(B)/server/dashboard_files.S
define WEB_IMAGE_TEXT
.section .rodata
$(foreach f,$(WEB_FILES),name_$(subst .,_,$(f)): .asciz "$(f)"
data_$(subst .,_,$(f)): .incbin "web/$(f)"
end_$(subst .,_,$(f)):
gzip_$(subst .,_,$(f)): .incbin "$(B)/server/web/$(f).gz"
gzip_end_$(subst .,_,$(f)):
)
.balign 8
.globl sl_dashboard_n_files
sl_dashboard_n_files: .quad $(words $(WEB_FILES))
.section .data.rel.ro, "aw"
.balign 8
.globl sl_dashboard_files
sl_dashboard_files:
$(foreach f,$(WEB_FILES),.quad name_$(subst .,_,$(f)), data_$(subst .,_,$(f)), end_$(subst .,_,$(f)) - data_$(subst .,_,$(f))
.quad gzip_$(subst .,_,$(f)), gzip_end_$(subst .,_,$(f)) - gzip_$(subst .,_,$(f))
)
.section .note.GNU-stack, ""
endef
$(shell mkdir -p $(dir $(WEB_IMAGE)))
$(file >$(WEB_IMAGE).new,$(WEB_IMAGE_TEXT))
$(shell cmp -s $(WEB_IMAGE).new $(WEB_IMAGE) || cp $(WEB_IMAGE).new $(WEB_IMAGE))

# -n: neither name nor time, so that the same files make the same program.
WEB_GZIP := $(WEB_FILES:%=$(B)/server/web/%.gz)
$(WEB_GZIP): $(B)/server/web/%.gz: web/%
	@mkdir -p $(@D)
	$(call say,gzip)
	gzip -9 -n -c $< >$@

$(B)/server/dashboard_files.o: $(WEB_IMAGE) $(WEB_SRC) $(WEB_GZIP)
	$(call say,as)
	$(CC) -c -o $@ $<
OBJ += $(B)/server/dashboard_files.o
